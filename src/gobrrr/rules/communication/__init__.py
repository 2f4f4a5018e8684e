"""Do ranks wait for each other, or links carry too little?"""
