// Reads names of shared memory from standard input, one a line, and removes what is left of them.
#include <libshm/libshm.h>

#include <iostream>
#include <string>

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    libshm_remove(line.c_str());
  }
  return 0;
}
