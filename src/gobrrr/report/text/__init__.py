"""How is a report shown in a terminal?"""
