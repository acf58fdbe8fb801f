"""Asking servers: in bounded time, few at once per host, with a cache to be trusted; credentials are never shown."""
