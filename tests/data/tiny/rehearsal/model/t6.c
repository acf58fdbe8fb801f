int tiny_6(void) { return 6; }
