"""The interface between the gateway and its parts."""
