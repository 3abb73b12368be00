"""Which messages are settled, and which have to be looked at: joins and aggregates, no work per message in Python.

A block is a regular configuration R and all that was sent in it. Its *settled* messages are a common beginning of what
all who installed R delivered in R: sent once, by whom and as all deliveries say, delivered by each at the same place,
not before it was sent, and each sender's in the order in which it sent them. docs/design/spark-check.md shows that no
violation of E1 to E14 needs a settled message as its witness, so that everything behind is asked of the others alone.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

NEVER = 2**31 - 1
BROADCAST_ROWS_MAX = 2_000_000
"""A table of blocks or chunks up to this size is sent to every task; a larger one is joined by shuffling."""


class Settled(NamedTuple):
    places: DataFrame
    """For each block the place from which on its deliveries are to be looked at, and whether the whole block is."""
    sends: DataFrame
    """For each block and sender how many of its first sends are settled."""


def small(table: DataFrame, rows: int) -> DataFrame:
    return F.broadcast(table) if rows <= BROADCAST_ROWS_MAX else table


def messages(scanned: DataFrame, carries: DataFrame) -> DataFrame:
    """The messages of all chunks, each with its block and its place there."""
    carried = carries.select(
        "cid",
        F.col("conf").alias("c_conf"),
        F.col("regular").alias("c_regular"),
        F.col("block").alias("c_block"),
        F.col("dels").alias("c_dels"),
        F.col("sends").alias("c_sends"),
        F.col("owns").alias("c_owns"),
    )
    dep = F.col("dep")
    block = (
        F.when(dep == 0, F.col("block"))
        .when(dep == 1, F.col("c_block"))
        .otherwise(F.when(F.col("c_regular"), F.col("c_conf")))
    )
    own_offset = F.when(F.col("send"), F.col("c_sends")).otherwise(F.col("c_owns"))
    return scanned.join(carried, "cid").select(
        "trace",
        "node",
        "step",
        "send",
        "msg",
        "conf",
        "sender",
        "safe",
        "label",
        F.when(block.isNotNull(), F.xxhash64("trace", block)).alias("block"),
        F.when(dep == 1, F.col("c_regular")).otherwise(F.col("regular")).alias("regular"),
        F.when(dep == 1, ~F.col("conf").eqNullSafe(F.col("c_conf"))).otherwise(F.col("wrong")).alias("wrong"),
        (F.col("pos") + F.when(dep == 1, F.col("c_dels")).otherwise(0)).cast("int").alias("pos"),
        F.when(F.col("own") < 0, F.lit(-1))
        .otherwise(F.col("own") + F.when(dep == 1, own_offset).otherwise(0))
        .cast("int")
        .alias("own"),
    )


def blocks(controls: DataFrame) -> DataFrame:
    """For each block how many visit it, whether all its members do, and whether something about it is odd."""
    confs = controls.where(F.col("conf").isNotNull()).withColumn("hash", F.xxhash64("trace", "conf"))
    each = confs.groupBy("trace", "hash").agg(
        F.count("*").alias("visits"),
        F.countDistinct("node").alias("nodes"),
        F.max(F.size("members")).alias("members"),
        (
            (F.min("conf") != F.max("conf"))
            | (F.min("regular") != F.max("regular"))
            | (F.min("members") != F.max("members"))
            | (F.count("*") != F.countDistinct("node"))
        ).alias("bad"),
        F.max("regular").alias("regular"),
        # Of a transitional configuration: the blocks to which those who deliver it count it.
        F.collect_set(F.xxhash64("trace", "block")).alias("of"),
    )
    shared = each.where(F.col("bad") | (F.size("of") > 1)).select("trace", F.explode("of").alias("hash")).distinct()
    regular = each.where(F.col("regular")).select("trace", "hash", "visits", "nodes", "members", "bad")
    return regular.join(shared.withColumn("shared", F.lit(True)), ["trace", "hash"], "left").select(
        F.col("hash").alias("block"),
        "trace",
        "visits",
        (F.col("nodes") == F.col("members")).alias("full"),
        (F.col("bad") | F.coalesce("shared", F.lit(False))).alias("bad"),
    )


def by_message(found: DataFrame) -> DataFrame:
    """One row for each message: what all its events say together."""
    send, tail = F.col("send"), ~F.col("regular")
    regular_place = F.when(~send & F.col("regular"), F.col("pos"))
    odd = F.col("wrong") | F.col("block").isNull() | (F.col("label") < 0) | (send & tail)
    return found.groupBy("trace", "msg").agg(
        F.sum(send.cast("int")).alias("sends"),
        F.count("*").alias("events"),
        F.max((~send & tail).cast("int")).alias("tail"),
        F.max(odd.cast("int")).alias("odd"),
        F.min("block").alias("block"),
        F.max("block").alias("block_max"),
        F.min("label").alias("label"),
        F.max("label").alias("label_max"),
        F.min(regular_place).alias("pos"),
        F.max(regular_place).alias("pos_max"),
        F.max(F.when(send, F.col("pos"))).alias("rank"),
        F.max(F.when(send, F.col("own"))).alias("nth_send"),
        F.max(F.when(~send, F.col("own"))).alias("nth_own"),
    )


def judged(each: DataFrame, of_blocks: DataFrame) -> DataFrame:
    """Messages that may be settled (`core`), and those that are odd."""
    odd = (
        (F.col("odd") > 0)
        | (F.col("sends") != 1)
        | (F.col("block") != F.col("block_max"))
        | (F.col("label") != F.col("label_max"))
    )
    core = (
        (F.col("tail") == 0)
        & (F.col("events") - 1 == F.col("visits"))
        & (F.col("pos") == F.col("pos_max"))
        & (F.col("rank") <= F.col("pos"))
        & (F.col("nth_send") == F.col("nth_own"))
        & (F.col("full") | (F.col("label") % 2 == 0))
        & ~F.col("bad")
    )
    joined = each.join(of_blocks.drop("trace"), "block", "left")
    return joined.select(
        "trace",
        "block",
        F.when(odd, F.col("msg")).alias("odd_msg"),
        (~odd & F.coalesce(core, F.lit(False))).alias("core"),
        "pos",
        F.expr("label div 2").cast("int").alias("node"),
    )


def settle(each: DataFrame, of_blocks: DataFrame, touched: DataFrame) -> Settled:
    """`touched` are the blocks of odd messages: they are looked at as they are."""
    first = each.where(~F.col("core") & F.col("block").isNotNull()).groupBy("block").agg(F.min("pos").alias("first"))
    places = (
        of_blocks.select("trace", "block", "bad")
        .join(first, "block", "left")
        .join(touched.withColumn("touched", F.lit(True)), "block", "left")
        .withColumn("whole", F.col("bad") | F.coalesce("touched", F.lit(False)))
        .select(
            "trace",
            "block",
            "whole",
            F.when(F.col("whole"), 0).otherwise(F.coalesce("first", F.lit(NEVER))).alias("place"),
        )
    )
    sends = (
        each.where("core")
        .join(places.select("block", "place"), "block")
        .where(F.col("pos") < F.col("place"))
        .groupBy("block", "node")
        .agg(F.count("*").alias("settled"))
    )
    return Settled(places, sends)


def loose(found: DataFrame, settled: Settled) -> DataFrame:
    """The messages that are not settled, with `whole` where their block is to be looked at as it is."""
    placed = found.join(settled.places.select("block", "place", "whole"), "block")
    delivered = placed.where(~F.col("send") & (~F.col("regular") | (F.col("pos") >= F.col("place"))))
    sent = (
        placed.where(F.col("send"))
        .join(settled.sends, ["block", "node"], "left")
        .where(F.col("own") >= F.coalesce("settled", F.lit(0)))
        .drop("settled")
    )
    return delivered.unionByName(sent)
