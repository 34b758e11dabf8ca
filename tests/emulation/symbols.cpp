// Reads the table once, when the first kernel runs.
#include "emulation/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/error.h"

namespace weir::emulation {
namespace {

thread_local char anchor = 0;  // its symbol and its address tell where the others are

struct Symbol {
  uint64_t value, size;
  std::string name;
};

struct Table {
  std::vector<Symbol> functions;  ///< by value
  std::vector<Symbol> shared;     ///< merged ranges of thread_local storage: offsets from the anchor's symbol
  uint64_t base = 0, anchor_value = 0;
};

bool is_shared(const std::string& name) {
  return name.starts_with("_ZZN4weir4cuda") || name.starts_with("_ZZN4weir9emulation4test");
}

Table read_table() {
  Table table;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* base) {
        *static_cast<uint64_t*>(base) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &table.base);
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  Elf64_Ehdr header;
  WEIR_CHECK(file.size() > sizeof header, "cannot read the program's own file");
  memcpy(&header, file.data(), sizeof header);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file.data() + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(file.data() + sections[i].sh_offset);
    const char* names = file.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t n = 0; n < sections[i].sh_size / sizeof(Elf64_Sym); ++n) {
      const Elf64_Sym& symbol = symbols[n];
      const std::string name = names + symbol.st_name;
      const auto type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_FUNC && symbol.st_size)
        table.functions.push_back({symbol.st_value, symbol.st_size, name});
      if (type == STT_TLS && is_shared(name)) table.shared.push_back({symbol.st_value, symbol.st_size, name});
      if (type == STT_TLS && name.find("emulation12_GLOBAL__N_16anchorE") != std::string::npos)
        table.anchor_value = symbol.st_value;
    }
  }
  const auto by_value = [](const Symbol& a, const Symbol& b) { return a.value < b.value; };
  std::sort(table.functions.begin(), table.functions.end(), by_value);
  std::sort(table.shared.begin(), table.shared.end(), by_value);
  return table;
}

const Table& table() {
  static const Table t = read_table();
  return t;
}

const Symbol* find(const void* address) {
  const uint64_t at = reinterpret_cast<uint64_t>(address) - table().base;
  const auto& f = table().functions;
  auto it = std::upper_bound(f.begin(), f.end(), at, [](uint64_t v, const Symbol& s) { return v < s.value; });
  if (it == f.begin()) return nullptr;
  --it;
  return at < it->value + it->size ? &*it : nullptr;
}

/// Without anonymous namespaces, the return type and the parameters.
std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  ::free(text);
  for (size_t at; (at = result.find("(anonymous namespace)::")) != std::string::npos;) result.erase(at, 23);
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i] == '<') ++depth;
    if (result[i] == '>') --depth;
    if (depth == 0 && result[i] == ' ') begin = i + 1;
    if (depth == 0 && result[i] == '(') return result.substr(begin, i - begin);
  }
  return result;
}

}  // namespace

std::string function_name(const void* address) {
  const Symbol* symbol = find(address);
  if (!symbol) return fmt::format("{}", address);
  return demangled(symbol->name);
}

std::string code_location(const void* address) {
  return fmt::format("{} ({:#x})", function_name(address),
                     reinterpret_cast<uint64_t>(address) - table().base);
}

void poison_static_shared() {
  char* origin = &anchor - table().anchor_value;
  for (const Symbol& symbol : table().shared) memset(origin + symbol.value, 0xff, symbol.size);
}

}  // namespace weir::emulation
