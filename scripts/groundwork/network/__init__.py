"""Network access with deadlines and a checksummed cache; credentials are never shown."""
