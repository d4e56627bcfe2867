"""The audit: what is wrong with the tasks of a suite, before an agent is blamed for it.

Gold is played, twice; so are agents that do nothing, and wrong answers.
"""
