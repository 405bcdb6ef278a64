"""A topic as a DataFrame: python examples/read_topic.py [folder of the data] [topic]"""

import sys

from penstock.spark import build_session, register

data, topic = (*sys.argv[1:], *("penstock-data", "events")[len(sys.argv) - 1 :])
spark = build_session()
register(spark)
rows = spark.read.format("penstock").option("topic", topic).load(f"{data}/topics")
rows.selectExpr("offset", "source", "cast(payload as string) message").orderBy("offset").show(5, truncate=60)
