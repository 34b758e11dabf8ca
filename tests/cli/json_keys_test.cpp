// docs/json.md and docs/ab.md against the commands: every key that one prints is in its tables, and every key
// there is printed or marked optional.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "cli/weir.h"

namespace weir::test {
namespace {

using Json = nlohmann::json;

struct Key {
  std::string path;  ///< "rows[].hits", "roles.ROLE.ns"
  bool optional = false;
};

/// The tables of docs/json.md by their headings, with the tables that they refer to ("see
/// [timings](#timings)") put in place.
class Documentation {
 public:
  Documentation() {
    for (const char* page : {"/docs/ab.md", "/docs/json.md"}) {
      std::ifstream file(std::string(WEIR_SOURCE_DIR) + page);
      std::string heading;
      for (std::string line; std::getline(file, line);) {
        if (line.rfind("#", 0) == 0) heading = line.substr(line.find_first_not_of("# "));
        if (line.rfind("| `", 0) == 0) rows_[heading].push_back(line);
      }
    }
  }
  std::vector<Key> keys(const std::string& section) const {
    std::vector<Key> all;
    const auto rows = rows_.find(section);
    EXPECT_NE(rows, rows_.end()) << "docs/json.md and ab.md have no table under '" << section << "'";
    if (rows == rows_.end()) return all;
    for (const std::string& row : rows->second) {
      const size_t cell = row.find(" | ", 2);
      const std::string meaning = row.substr(cell + 3);
      const bool optional = meaning.rfind("*optional*", 0) == 0;
      for (const std::string& path : paths(row.substr(0, cell))) {
        all.push_back({path, optional});
        std::smatch link;
        if (!std::regex_search(meaning, link, std::regex(R"(see \[[a-z -]+\]\(#([a-z-]+)\))"))) continue;
        for (const Key& key : keys(link[1])) all.push_back({path + "." + key.path, key.optional});
      }
    }
    return all;
  }

 private:
  /// "`a.b`, `.c`": a.b and a.c.
  static std::vector<std::string> paths(const std::string& cell) {
    std::vector<std::string> all;
    const std::regex code("`([^`]+)`");
    for (std::sregex_iterator at(cell.begin(), cell.end(), code), end; at != end; ++at) {
      const std::string key = (*at)[1];
      all.push_back(key[0] == '.' ? all.front().substr(0, all.front().rfind('.')) + key : key);
    }
    return all;
  }
  std::map<std::string, std::vector<std::string>> rows_;
};

/// Dots within a key (of a GGUF file's) are no steps.
void collect(const Json& json, const std::string& path, std::set<std::string>& paths) {
  if (json.is_array())
    for (const Json& element : json) collect(element, path + "[]", paths);
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '.', '/');
    const std::string below = path.empty() ? name : path + "." + name;
    paths.insert(below);
    collect(value, below, paths);
  }
}

std::vector<std::string> segments(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream in(path);
  for (std::string part; std::getline(in, part, '.');) parts.push_back(part);
  return parts;
}

/// Whether a printed path is the documented key (names in capitals are any name), or an object or list on the
/// way to it.
enum class Relation { none, above, same };
Relation relation(const std::string& printed, const std::string& documented) {
  const auto path = segments(printed), key = segments(documented);
  if (path.size() > key.size()) return Relation::none;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool any_name = key[i].find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos;
    if (any_name || path[i] == key[i]) continue;
    // "rows" is above "rows[].hits".
    const bool list = i + 1 == path.size() && key[i].rfind(path[i] + "[", 0) == 0;
    return list ? Relation::above : Relation::none;
  }
  return path.size() < key.size() ? Relation::above : Relation::same;
}

class JsonKeys : public Cli {
 protected:
  /// What `printed` and the table of `section` do not have in common, a line each.
  std::vector<std::string> differences(const std::string& section, const Json& printed) const {
    std::set<std::string> paths;
    collect(printed, "", paths);
    const std::vector<Key> keys = documentation_.keys(section);
    std::vector<std::string> lines;
    for (const std::string& path : paths)
      if (std::none_of(keys.begin(), keys.end(),
                       [&](const Key& key) { return relation(path, key.path) != Relation::none; }))
        lines.push_back(section + ": printed, not in the table: " + path);
    for (const Key& key : keys)
      if (!key.optional && !printed_as(key.path, paths) && below_parent(key.path, paths))
        lines.push_back(section + ": in the table, not printed: " + key.path);
    return lines;
  }
  void expect_documented(const std::string& section, const Json& printed) const {
    for (const std::string& line : differences(section, printed)) ADD_FAILURE() << line;
  }
  Json answer(const Arguments& arguments) const { return json_answer(weir(arguments)); }
  Json file(const std::string& path) const { return Json::parse(read_file(path)); }

  Documentation documentation_;
  std::string model_ = tiny();
  Arguments small_{"-m", model_, "-t", "1", "--memory", "1GiB"};

 private:
  static bool printed_as(const std::string& key, const std::set<std::string>& paths) {
    return std::any_of(paths.begin(), paths.end(),
                       [&](const std::string& path) { return relation(path, key) == Relation::same; });
  }
  /// Whether this run printed anything beside or below the key: under a null, an empty list or an optional
  /// object that is not there it is not missing.
  static bool below_parent(const std::string& key, const std::set<std::string>& paths) {
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) return true;
    const std::string beside = key.substr(0, dot) + ".ANY";
    return printed_as(beside, paths);
  }
};

TEST_F(JsonKeys, OfRunAndTheLedger) {
  const std::string ledger = dir_.file("ledger.json");
  const Arguments run = Arguments{"run"} + small_ +
                        Arguments{"-p", "the river", "-n", "4", "--greedy", "--ignore-eos", "--json"};
  expect_documented("run", answer(run));
  expect_documented("run", answer(run + Arguments{"--hash-logits", "--ledger-json", ledger}));
  expect_documented("ledger", file(ledger));
}

TEST_F(JsonKeys, OfInfoPlanAndTokenize) {
  expect_documented("info", answer({"info", "-m", model_, "--json"}));
  expect_documented("info", answer({"info", "-m", pocket_model(), "--json"}));
  expect_documented("plan", answer(Arguments{"plan"} + small_ + Arguments{"--json"}));
  expect_documented("tokenize", answer({"tokenize", "-m", model_, "-p", "the river", "--json"}));
}

TEST_F(JsonKeys, OfBenchPerplexityAndVerify) {
  expect_documented("bench",
                    answer(Arguments{"bench"} + small_ +
                           Arguments{"-p", "4", "-n", "2", "-r", "1", "--ledger-cost", "1", "--json"}));
  const std::string text = dir_.file("text");
  write_file(text, std::string(200, 'a'));
  expect_documented("perplexity", answer(Arguments{"perplexity"} + small_ +
                                         Arguments{"-f", text, "-c", "16", "--chunks", "2", "--json"}));
  expect_documented(
      "verify", answer(Arguments{"verify", "--quick", "-n", "2", "--json"} + small_ + Arguments{"-c", "64"}));
}

TEST_F(JsonKeys, OfReplayAndTheAdviceOfPlan) {
  const std::string trace = dir_.file("routes"), ledger = dir_.file("ledger.json");
  answer(Arguments{"run"} + small_ +
         Arguments{"-p", "the river", "-n", "20", "--greedy", "--ignore-eos", "--json", "--expert-slots", "4",
                   "--route-trace", trace, "--ledger-json", ledger});
  expect_documented("replay", answer({"replay", trace, "--json"}));
  expect_documented("replay", answer({"replay", trace, "-m", model_, "--read-rate", "1", "--ledger-json",
                                      ledger, "--json"}));
  expect_documented("plan", answer(Arguments{"plan"} + small_ + Arguments{"--route-trace", trace, "--json"}));
}

TEST_F(JsonKeys, OfProfileAndWhatIf) {
  const std::string prompt = dir_.file("p.txt");
  write_file(prompt, "the river");
  const Arguments profile =
      Arguments{"profile"} + small_ + Arguments{"-c", "64", "-n", "8", "--prompts", prompt, "--json"};
  expect_documented("profile", answer(profile));
  expect_documented("what-if", answer(profile + Arguments{"--what-if", "--role", "attention"}));
}

TEST_F(JsonKeys, OfAb) {
  const std::string prompt = dir_.file("p.txt"), out = dir_.file("ab.json");
  write_file(prompt, "the river");
  const ProcessResult result =
      weir(Arguments{"ab"} + small_ +
           Arguments{"-c", "64", "-n", "6", "--prompts", prompt, "--a", "--expert-slots 2", "--b", "",
                     "--pairs", "6", "--runs", "1", "--out", out, "--json"});
  expect_documented("report", Json::parse(result.out));
  expect_documented("experiment", file(out));
}

TEST_F(JsonKeys, AKeyTooManyOrTooFewIsSeen) {
  Json run = answer(Arguments{"run"} + small_ + Arguments{"-p", "x", "-n", "1", "--greedy", "--json"});
  run["timings"]["other"] = 1;
  run["memory"].erase("peak_bytes");
  const std::vector<std::string> expected{"run: printed, not in the table: timings.other",
                                          "run: in the table, not printed: memory.peak_bytes"};
  EXPECT_EQ(differences("run", run), expected);
}

/// A token can be a part of a character: its bytes are shown, and the line stays valid JSON.
TEST_F(JsonKeys, PiecesShowTheBytesOfPartsOfCharacters) {
  const Json tokens = answer({"tokenize", "-m", pocket_model(), "-p", "\xf0\x9f\xa6\x95", "--json"});
  std::string joined;
  for (const Json& piece : tokens["pieces"]) joined += piece.get<std::string>();
  EXPECT_EQ(joined, "<0xF0><0x9F><0xA6><0x95>");
}

}  // namespace
}  // namespace weir::test
