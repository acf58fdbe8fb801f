int tiny_1(void) { return 1; }
