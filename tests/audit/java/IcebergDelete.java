import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.io.OutputFileFactory;

/** Deletes a row of each file of a table by a deletion vector, of format 3. Arguments: URI of the REST catalog, row. */
public class IcebergDelete {
    public static void main(String[] arguments) throws Exception {
        var properties =
                Map.of(
                        "type", "rest",
                        "uri", arguments[0],
                        "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO");
        Catalog catalog = CatalogUtil.buildIcebergCatalog("lake", properties, new Configuration());
        Table table = catalog.loadTable(TableIdentifier.of("shop", "orders"));
        table.updateProperties().set("format-version", "3").commit();
        var factory = OutputFileFactory.builderFor(table, 1, 1).format(org.apache.iceberg.FileFormat.PUFFIN).build();
        var writer = new BaseDVFileWriter(factory, path -> null);
        try (var tasks = table.newScan().planFiles()) {
            for (FileScanTask task : tasks) {
                writer.delete(task.file().location(), Long.parseLong(arguments[1]), table.spec(), task.file().partition());
            }
        }
        writer.close();
        RowDelta delta = table.newRowDelta();
        writer.result().deleteFiles().forEach(delta::addDeletes);
        delta.commit();
    }
}
