"""The command line: parse, call the library, print. Nothing else prints."""
