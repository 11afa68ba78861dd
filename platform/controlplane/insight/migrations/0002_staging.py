"""The staging table that Spark's `lag_analytics` fills; it merges from there into insight_lag_window."""

from django.db import migrations

STAGING = """
create unlogged table insight_lag_window_staging (
    run_id uuid,
    cluster_id uuid,
    consumer_group text,
    topic text,
    broker text default '',
    queue_id integer,
    window_start timestamptz,
    window_seconds integer,
    samples integer,
    lag_messages_p50 bigint,
    lag_messages_p95 bigint,
    lag_messages_p99 bigint,
    lag_messages_max bigint,
    lag_messages_last bigint,
    lag_ms_p50 bigint,
    lag_ms_p95 bigint,
    lag_ms_p99 bigint,
    lag_ms_max bigint,
    lag_ms_last bigint,
    trend_per_second double precision,
    drain_seconds double precision,
    drain_state text,
    skew double precision,
    stuck boolean,
    loses_data_at timestamptz
);
create index insight_lag_window_staging_run on insight_lag_window_staging (run_id);
"""


class Migration(migrations.Migration):
    dependencies = [("insight", "0001_tables")]

    operations = [migrations.RunSQL(STAGING, "drop table insight_lag_window_staging")]
