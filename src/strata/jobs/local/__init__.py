"""This machine as a target of jobs: a queue with slots, and a supervisor for each job that outlives the service."""
