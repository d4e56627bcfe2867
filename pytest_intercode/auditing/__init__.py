"""The audit: what is wrong with the tasks of a suite, before it counts against an agent.

Gold is played, twice; so are agents that do nothing, and wrong answers.
"""
