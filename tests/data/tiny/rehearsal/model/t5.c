int tiny_5(void) { return 5; }
