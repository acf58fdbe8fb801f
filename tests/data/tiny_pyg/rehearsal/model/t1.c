int tiny(void) { return 1; }
