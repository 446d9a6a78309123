"""The commands and their options, by the folder that has what they do."""
