"""Network access with deadlines and a cache; credentials are never shown."""
