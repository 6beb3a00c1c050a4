"""The commands of these tools: entry points of the group `delegatekit.commands`."""
