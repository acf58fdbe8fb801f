// Reads names of shared memory from standard input, one a line, and removes what is left of them when that ends.
#include <libshm/libshm.h>

#include <iostream>
#include <set>
#include <string>

int main() {
  std::set<std::string> names;
  for (std::string line; std::getline(std::cin, line);) {
    names.insert(line);
  }
  int removed = 0;
  for (const std::string& name : names) {
    removed += libshm_remove(name) ? 1 : 0;
  }
  std::cout << "removed " << removed << " of " << names.size() << '\n';
  return 0;
}
