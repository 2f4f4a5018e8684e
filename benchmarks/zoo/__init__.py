"""Programs whose training or inference code is a library's own: is `gobrrr run` right on them, does `tune` help?"""
