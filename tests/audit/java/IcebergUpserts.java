import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.GenericAppenderFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.BaseTaskWriter;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.Types;

/**
 * Writes a table of the latest row per key with the delta writer of Iceberg's library, as Flink's upserts do: equality
 * deletes for rows of earlier commits, position deletes for rows of the same one. Prints the offsets of the rows that
 * the library itself reads from it.
 *
 * <p>Arguments: folder of the table, and "partitioned" or "whole". Standard input: lines of "upsert ID REGION OFFSET",
 * "insert ID REGION OFFSET" (without a delete), "delete ID REGION", and "commit"; an ID of "-" is null.
 */
public class IcebergUpserts {
    static final Schema SCHEMA =
            new Schema(
                    Types.NestedField.optional(1, "id", Types.LongType.get()),
                    Types.NestedField.optional(2, "region", Types.StringType.get()),
                    Types.NestedField.required(3, "kafka_partition", Types.IntegerType.get()),
                    Types.NestedField.required(4, "kafka_offset", Types.LongType.get()));
    static final Schema KEY = SCHEMA.select("id", "region");

    static class Writer extends BaseTaskWriter<Record> {
        final Map<PartitionKey, Delta> deltas = new HashMap<>();
        final PartitionSpec spec;

        class Delta extends BaseEqualityDeltaWriter {
            Delta(PartitionKey partition) {
                super(partition, SCHEMA, KEY);
            }

            @Override
            protected StructLike asStructLike(Record row) {
                return row;
            }

            @Override
            protected StructLike asStructLikeKey(Record key) {
                return key;
            }
        }

        Writer(Table table, int number) {
            super(
                    table.spec(),
                    FileFormat.PARQUET,
                    new GenericAppenderFactory(SCHEMA, table.spec(), new int[] {1, 2}, KEY, null),
                    OutputFileFactory.builderFor(table, number, 1).format(FileFormat.PARQUET).build(),
                    table.io(),
                    Long.MAX_VALUE);
            spec = table.spec();
        }

        Delta deltaOf(Record row) {
            var key = new PartitionKey(spec, SCHEMA);
            key.partition(row);
            // A position delete names a partition, also of a table that has only one.
            return deltas.computeIfAbsent(key, each -> new Delta(spec.isUnpartitioned() ? null : each.copy()));
        }

        @Override
        public void write(Record row) throws IOException {
            deltaOf(row).write(row);
        }

        void deleteKeyOf(Record row) throws IOException {
            var key = GenericRecord.create(KEY);
            key.setField("id", row.getField("id"));
            key.setField("region", row.getField("region"));
            deltaOf(row).deleteKey(key);
        }

        @Override
        public void close() throws IOException {
            for (var delta : deltas.values()) {
                delta.close();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        var spec = PartitionSpec.builderFor(SCHEMA);
        var made = arguments[1].equals("partitioned") ? spec.identity("region").build() : spec.build();
        Table table =
                new HadoopTables(new Configuration())
                        .create(SCHEMA, made, Map.of("format-version", "2"), arguments[0]);
        int commits = 0;
        var writer = new Writer(table, commits);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            var words = line.split(" ");
            if (words[0].equals("commit")) {
                RowDelta delta = table.newRowDelta();
                var written = writer.complete();
                for (var file : written.dataFiles()) {
                    delta.addRows(file);
                }
                for (var file : written.deleteFiles()) {
                    delta.addDeletes(file);
                }
                delta.commit();
                writer = new Writer(table, ++commits);
                continue;
            }
            var row = GenericRecord.create(SCHEMA);
            row.setField("id", words[1].equals("-") ? null : Long.valueOf(words[1]));
            row.setField("region", words[2]);
            row.setField("kafka_partition", 0);
            if (!words[0].equals("insert")) {
                writer.deleteKeyOf(row);
            }
            if (!words[0].equals("delete")) {
                row.setField("kafka_offset", Long.valueOf(words[3]));
                writer.write(row);
            }
        }
        try (var rows = IcebergGenerics.read(table).build()) {
            rows.forEach(row -> System.out.println(row.getField("kafka_offset")));
        }
    }
}
