"""The audit: finds what is wrong with a suite's tasks before it counts against an agent.

It plays gold twice, agents that do nothing, and wrong answers.
"""
