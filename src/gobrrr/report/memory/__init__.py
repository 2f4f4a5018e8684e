"""How is told which memory ran out, which batch fits, and which serves best?"""
