int tiny_2(void) { return 2; }
