"""Which events end a step, and what else is counted beside?"""
