// Reads names of shared memory from standard input, one a line, and removes those that still exist.
#include <libshm/libshm.h>

#include <iostream>
#include <string>

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    libshm_remove(line.c_str());
  }
  return 0;
}
