"""Campaigns of seeds over a cluster: a range of seeds a task, results as they come, resumable.

from ordercast.spark.campaign.job import results
"""
