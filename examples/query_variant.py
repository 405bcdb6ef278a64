"""Fields of the events' data, VARIANT in the view: python examples/query_variant.py [folder of the data]"""

import sys

from penstock.spark import build_session, register_views

data = (*sys.argv[1:], "penstock-data")[0]
spark = build_session()
register_views(spark, f"{data}/tables")
spark.sql("select type, data:path::string path, count(*) from events group by all order by all").show()
