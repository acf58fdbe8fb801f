int tiny_3(void) { return 3; }
