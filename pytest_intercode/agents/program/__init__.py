"""An agent that is a program in any language, and the processes of all agents that are programs."""
