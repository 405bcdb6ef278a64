import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.sparkproject.jetty.ee10.servlet.ServletContextHandler;
import org.sparkproject.jetty.ee10.servlet.ServletHolder;
import org.sparkproject.jetty.server.Server;

/** Iceberg's REST catalog on the loopback address, in the Jetty that Spark contains. Arguments: port, folder. */
public class IcebergRest {
    public static void main(String[] arguments) throws Exception {
        var properties =
                Map.of(
                        "catalog-impl", "org.apache.iceberg.inmemory.InMemoryCatalog",
                        "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO",
                        "warehouse", "file:" + arguments[1] + "/warehouse");
        var catalog = CatalogUtil.buildIcebergCatalog("backend", properties, new Configuration());
        var context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
