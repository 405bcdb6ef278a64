import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/** Hive's Metastore on the loopback address; its own main listens on all. Arguments: port, folder. */
public class HiveMetastore {
    public static void main(String[] arguments) throws Exception {
        String folder = arguments[1];
        HiveConf configuration = new HiveConf();
        configuration.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + folder + "/db;create=true");
        configuration.set("hive.metastore.warehouse.dir", "file:" + folder + "/warehouse");
        configuration.set("datanucleus.schema.autoCreateAll", "true");
        configuration.set("datanucleus.connectionPoolingType", "NONE");
        configuration.set("hive.metastore.schema.verification", "false");
        var handler = HiveMetaStore.newRetryingHMSHandler("metastore", configuration, true);
        // The schema that the handler creates lacks the tables of locks.
        TxnDbUtil.prepDb(configuration);
        var socket = new TServerSocket(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        var processor = new TSetIpAddressProcessor<>(handler);
        new TThreadPoolServer(new TThreadPoolServer.Args(socket).processor(processor)).serve();
    }
}
