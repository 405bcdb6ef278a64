"""The rows of the table beside what the ledger has of them, by minute: python examples/join_ledger.py [data folder]"""

import sys

from penstock.spark import build_session, register, register_views

data = (*sys.argv[1:], "penstock-data")[0]
spark = build_session()
register(spark)
register_views(spark, f"{data}/tables")
spark.read.format("penstock").option("topic", "_ledger").load(f"{data}/topics").createOrReplaceTempView("posts")
post = "tier string, topic string, counts array<struct<source:string,bucket:bigint,counts:map<string,bigint>>>"
told = f"""select p.topic, c.source, timestamp_seconds(c.bucket) bucket, name, number from posts
    lateral view explode(array(from_json(cast(payload as string), '{post}'))) as p
    lateral view explode(p.counts) as c lateral view explode(c.counts) as name, number where p.tier = 'landed'"""
spark.sql(
    f"""select topic, source, bucket, name, l.number as in_ledger, t.number as in_table from
    (select topic, source, bucket, name, sum(number) number from ({told}) group by all) l full join
    (select topic, source, bucket, if(kind = 'quarantine', 'quarantined.' || reason, 'landed.' || kind) name,
        count(*) number from landed group by all) t using (topic, source, bucket, name) order by all"""
).show(truncate=False)
