"""The data source where requests must be signed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from highwater import Credentials, Message, Producer
from mqwire.acl import SessionCredentials
from tests.daemons import DaemonCluster
from tests.interop.targets import ADMIN_KEY, ADMIN_SECRET
from tests.remoting import create_topic
from tests.security.certificates import Authority
from tests.security.test_tls import keys
from tests.spark_etl.topics import SEND_TIMEOUT_MS

READER = {"accessKey": "reader-key", "secretKey": "reader-secret"}
ACCOUNTS = {
    "globalWhiteRemoteAddresses": [],
    "accounts": [
        {"accessKey": ADMIN_KEY, "secretKey": ADMIN_SECRET, "admin": True},
        {
            **READER,
            "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "DENY",
            "topicPerms": ["orders=SUB"],
            "groupPerms": ["spark-readers=SUB"],
        },
    ],
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("etl-authority"))


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[str]:
    """Of a cluster with access control, TLS beside plain text, and five messages in `orders`."""
    folder: Path = tmp_path_factory.mktemp("etl-access")
    (folder / "plain_acl.yml").write_text(yaml.safe_dump(ACCOUNTS))
    conf = {"aclEnable": "true", "aclConfigFile": str(folder / "plain_acl.yml"), **keys(authority, "broker")}
    with DaemonCluster.start(folder, conf, namesrv_conf=keys(authority, "names")) as cluster:
        administrator = SessionCredentials(ADMIN_KEY, ADMIN_SECRET)
        create_topic(cluster.broker.address, "orders", queues=1, credentials=administrator, namesrv=cluster.namesrv)
        sender = Credentials(ADMIN_KEY, ADMIN_SECRET)
        with Producer(cluster.namesrv, credentials=sender, timeout_ms=SEND_TIMEOUT_MS) as producer:
            for number in range(5):
                producer.send(Message("orders", b"order %d" % number))
        yield cluster.namesrv


def orders(spark: SparkSession, namesrv: str, **options: str) -> DataFrame:
    return spark.read.format("highwater").options(namesrv=namesrv, topic="orders", **options).load()


def test_a_tenant_reads_its_topic_in_the_name_of_its_group(spark: SparkSession, namesrv: str) -> None:
    assert orders(spark, namesrv, **READER, group="spark-readers").count() == 5


@pytest.mark.parametrize(
    "given", [{}, {**READER, "secretKey": "wrong"}, {**READER, "group": "others"}], ids=["nothing", "wrong", "group"]
)
def test_what_is_refused_is_reported_with_the_way_out(spark: SparkSession, namesrv: str, given: dict[str, str]) -> None:
    with pytest.raises(
        PySparkException, match=r"(?s)can't be read from.*give accessKey and secretKey.*the option group"
    ):
        orders(spark, namesrv, **given).collect()


IN_ITS_GROUP = {**READER, "group": "spark-readers", "requestTimeoutMs": "20000"}


def test_a_tenants_job_reads_over_tls_with_its_key_and_the_clusters_authority(
    spark: SparkSession, namesrv: str, authority: Authority
) -> None:
    assert orders(spark, namesrv, **IN_ITS_GROUP, tlsCa=str(authority.cert_path)).count() == 5


@pytest.mark.long
def test_a_tenants_stream_reads_over_tls_with_the_authority_as_text(
    spark: SparkSession, namesrv: str, authority: Authority, tmp_path: Path
) -> None:
    given = {**IN_ITS_GROUP, "tlsCa": authority.cert_path.read_text()}
    stream = spark.readStream.format("highwater").options(namesrv=namesrv, topic="orders", **given).load()
    query = stream.writeStream.format("memory").queryName("over_tls").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert spark.table("over_tls").count() == 5


def test_a_cluster_whose_certificate_another_authority_signed_is_not_read(
    spark: SparkSession, namesrv: str, tmp_path: Path
) -> None:
    stranger = str(Authority(tmp_path / "stranger").cert_path)
    with pytest.raises(PySparkException, match=r"(?i)certificate"):
        orders(spark, namesrv, **READER, group="spark-readers", tlsCa=stranger, retryTimeoutMs="0").collect()
