// Choosing how experts are read.
#include "experts/reader.h"

#include "experts/queued_reader.h"

namespace weir {

IoMode parse_io_mode(const std::string& text) {
  if (text == "auto") return IoMode::automatic;
  if (text == "direct") return IoMode::direct;
  if (text == "buffered") return IoMode::buffered;
  throw input_error("--io '{}': the ways of reading are auto, direct and buffered", text);
}

ReadAdvice parse_read_advice(const std::string& text) {
  if (text == "off") return ReadAdvice::off;
  if (text == "bounded") return ReadAdvice::bounded;
  throw input_error("--read-advice '{}': off or bounded is understood", text);
}

std::unique_ptr<ExpertReader> ExpertReader::open(const std::vector<gguf::File>& files,
                                                 const ReaderOptions& options) {
  WEIR_CHECK(!files.empty());
  ReadSource source = open_read_source(files, options);
  std::string why;
  if (options.io_uring && source.direct) {
    auto reader = make_uring_reader(source, options, why);
    if (reader) return reader;
  }
  return make_pool_reader(std::move(source), options, why);
}

}  // namespace weir
