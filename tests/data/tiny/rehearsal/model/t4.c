int tiny_4(void) { return 4; }
