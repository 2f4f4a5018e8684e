"""Does torch.compile compile again, or give up?"""
