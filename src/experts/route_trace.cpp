// The trace's bytes: writing, and reading with every field checked before use. docs/route-trace.md is the
// specification.
#include "experts/route_trace.h"

#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace weir {
namespace {

constexpr char magic[8] = {'W', 'E', 'I', 'R', 'R', 'O', 'U', 'T'};
constexpr uint32_t version = 1;
constexpr uint8_t tag_end = 0, tag_round = 1, tag_record = 2;
constexpr int max_layers = 1 << 16, max_top_k = 1 << 10, max_experts = 1 << 16;
constexpr size_t flush_bytes = 16 << 10;
constexpr size_t record_bytes = 16;  // of a record, besides its ids

/// Ids take a byte where the layer's experts allow it.
bool wide_ids(int experts) { return experts > 256; }

template <typename T>
void put(std::vector<uint8_t>& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i)));
}

/// LEB128: seven bits a byte, low first.
void put_varint(std::vector<uint8_t>& out, uint32_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<uint8_t>(value | 0x80));
  out.push_back(static_cast<uint8_t>(value));
}

std::vector<uint8_t> header_bytes(const RouteTraceHeader& header) {
  std::vector<uint8_t> out(std::begin(magic), std::end(magic));
  put(out, version);
  put(out, header.fingerprint);
  put(out, static_cast<uint32_t>(header.layers));
  put(out, static_cast<uint32_t>(header.top_k));
  for (size_t l = 0; l < static_cast<size_t>(header.layers); ++l) {
    put(out, static_cast<uint32_t>(header.experts[l]));
    put(out, header.expert_bytes[l]);
  }
  return out;
}

/// Walks the file; every failure names file and offset.
class Cursor {
 public:
  Cursor(const std::string& path, std::vector<uint8_t> data) : path_(path), data_(std::move(data)) {}
  size_t offset() const { return at_; }
  size_t left() const { return data_.size() - at_; }
  const uint8_t* data() const { return data_.data(); }
  Error damaged(const std::string& what) const { return input_error("{}: offset {}: {}", path_, at_, what); }

  const uint8_t* take(size_t bytes, const char* what) {
    if (bytes > left()) throw damaged(fmt::format("the file ends within {}; {} bytes needed", what, bytes));
    const uint8_t* p = data_.data() + at_;
    at_ += bytes;
    return p;
  }
  template <typename T>
  T get(const char* what) {
    const uint8_t* p = take(sizeof(T), what);
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(p[i]) << (8 * i);
    return static_cast<T>(value);
  }
  uint32_t varint(const char* what) {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const auto byte = get<uint8_t>(what);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        if (value > UINT32_MAX) break;
        return static_cast<uint32_t>(value);
      }
    }
    throw damaged(fmt::format("{} is larger than 32 bits", what));
  }
  /// A u32 within [low, high].
  int bounded(int low, int high, const char* what) {
    const auto value = get<uint32_t>(what);
    if (value < static_cast<uint32_t>(low) || value > static_cast<uint32_t>(high))
      throw damaged(fmt::format("{} is {}; {} to {} are possible", what, value, low, high));
    return static_cast<int>(value);
  }

 private:
  const std::string& path_;
  std::vector<uint8_t> data_;
  size_t at_ = 0;
};

RouteTraceHeader read_header(Cursor& in) {
  if (std::memcmp(in.take(sizeof magic, "the magic"), magic, sizeof magic) != 0)
    throw in.damaged("not a route trace: it does not begin with WEIRROUT");
  if (const auto v = in.get<uint32_t>("the version"); v != version)
    throw in.damaged(fmt::format("version {}; this program reads version {}", v, version));
  RouteTraceHeader header;
  header.fingerprint = in.get<uint64_t>("the fingerprint");
  header.layers = in.bounded(1, max_layers, "the count of layers");
  header.top_k = in.bounded(1, max_top_k, "the count of experts a row");
  for (int l = 0; l < header.layers; ++l) {
    header.experts.push_back(in.bounded(0, max_experts, "a layer's count of experts"));
    header.expert_bytes.push_back(in.get<uint64_t>("the bytes of an expert"));
    if (header.experts.back() > 0 && header.experts.back() < header.top_k)
      throw in.damaged(
          fmt::format("layer {} has {} experts; a row uses {}", l, header.experts.back(), header.top_k));
  }
  return header;
}

RouteRecord read_record(Cursor& in, const RouteTraceHeader& header) {
  RouteRecord record;
  const uint32_t layer = in.varint("a layer's number");
  if (layer >= static_cast<uint32_t>(header.layers) || header.experts[layer] == 0)
    throw in.damaged(fmt::format("layer {} has no experts", layer));
  const uint32_t rows = in.varint("a count of rows");
  const int experts = header.experts[layer];
  const size_t width = wide_ids(experts) ? 2 : 1, top_k = static_cast<size_t>(header.top_k);
  if (rows == 0 || rows > in.left() / (width * top_k))
    throw in.damaged(
        fmt::format("{} rows of {} ids do not fit into the {} bytes left", rows, top_k, in.left()));
  record.layer = static_cast<int>(layer);
  record.rows = static_cast<int>(rows);
  record.ids.reserve(rows * top_k);
  for (size_t i = 0; i < rows * top_k; ++i) {
    const uint16_t id = width == 2 ? in.get<uint16_t>("ids") : in.get<uint8_t>("ids");
    if (id >= experts || (i % top_k > 0 && id <= record.ids.back()))
      throw in.damaged(fmt::format("id {} of {} experts; the ids of a row increase", id, experts));
    record.ids.push_back(id);
  }
  return record;
}

}  // namespace

struct RouteTraceWriter::Impl {
  Impl(const std::string& path, RouteTraceHeader h) : header(std::move(h)), file(path) {}
  RouteTraceHeader header;
  std::vector<uint8_t> buffer;
  Hash64 hash;
  uint64_t records = 0;
  std::optional<Error> trouble;  ///< the first write that failed; thrown by close()
  AtomicFile file;

  void flush() {
    hash.add(buffer.data(), buffer.size());
    write();
  }
  void write() {
    try {
      if (!trouble) file.write(buffer.data(), buffer.size());
    } catch (const Error& e) {
      trouble = e;
    }
    buffer.clear();
  }
};

RouteTraceWriter::RouteTraceWriter(const std::string& path, const RouteTraceHeader& header)
    : impl_(std::make_unique<Impl>(path, header)) {
  WEIR_CHECK(header.experts.size() == static_cast<size_t>(header.layers) &&
                 header.expert_bytes.size() == header.experts.size(),
             "{} layers, {} counts", header.layers, header.experts.size());
  impl_->buffer = header_bytes(header);
  impl_->buffer.reserve(impl_->buffer.size() + flush_bytes);
}

uint64_t RouteTraceWriter::bytes(int layers, int rows, int top_k) {
  // The header's bytes and its own tables, and the model's counts.
  const auto of_layers = static_cast<uint64_t>(layers) * (sizeof(uint64_t) + sizeof(uint32_t));
  // A record comes in whole; one that the buffer has no room for may double it.
  const uint64_t record =
      record_bytes + uint64_t{2} * static_cast<uint64_t>(rows) * static_cast<uint64_t>(top_k);
  return 4 * of_layers + flush_bytes + 2 * record;
}

RouteTraceWriter::~RouteTraceWriter() = default;

void RouteTraceWriter::begin_round(Phase phase) {
  WEIR_CHECK(impl_, "a closed trace");
  impl_->buffer.push_back(tag_round);
  impl_->buffer.push_back(static_cast<uint8_t>(phase));
}

void RouteTraceWriter::record(int layer, std::span<const int32_t> ids, int rows) {
  WEIR_CHECK(impl_, "a closed trace");
  Impl& out = *impl_;
  WEIR_CHECK(ids.size() == static_cast<size_t>(rows) * static_cast<size_t>(out.header.top_k),
             "{} ids, {} rows", ids.size(), rows);
  if (out.buffer.size() + record_bytes + 2 * ids.size() > flush_bytes) out.flush();
  out.buffer.push_back(tag_record);
  put_varint(out.buffer, static_cast<uint32_t>(layer));
  put_varint(out.buffer, static_cast<uint32_t>(rows));
  const bool wide = wide_ids(out.header.experts[static_cast<size_t>(layer)]);
  for (const int32_t id : ids) {
    out.buffer.push_back(static_cast<uint8_t>(id));
    if (wide) out.buffer.push_back(static_cast<uint8_t>(id >> 8));
  }
  ++out.records;
}

void RouteTraceWriter::close() {
  if (!impl_) return;
  const std::unique_ptr<Impl> out = std::move(impl_);
  out->buffer.push_back(tag_end);
  put(out->buffer, out->records);
  out->flush();
  put(out->buffer, out->hash.value());
  out->write();
  if (out->trouble) throw *out->trouble;
  out->file.commit();
}

RouteTrace RouteTrace::read(const std::string& path) {
  const InputFile file = InputFile::open(path);
  std::vector<uint8_t> data(file.size());
  file.pread_exact(data.data(), data.size(), 0);
  return parse(std::move(data), path);
}

RouteTrace RouteTrace::parse(std::vector<uint8_t> bytes, const std::string& name) {
  Cursor in(name, std::move(bytes));
  RouteTrace trace;
  trace.header = read_header(in);
  Phase phase = Phase::prefill;
  uint32_t rounds = 0;
  while (true) {
    const auto tag = in.get<uint8_t>("the records (there is no end mark)");
    if (tag == tag_round) {
      const auto value = in.get<uint8_t>("a round's phase");
      if (value >= phase_count) throw in.damaged(fmt::format("phase {} of {}", value, phase_count));
      phase = static_cast<Phase>(value);
      ++rounds;
    } else if (tag == tag_record) {
      if (rounds == 0) throw in.damaged("a record before the first round");
      trace.records.push_back(read_record(in, trace.header));
      trace.records.back().phase = phase;
      trace.records.back().round = rounds - 1;
    } else if (tag == tag_end) {
      break;
    } else {
      throw in.damaged(fmt::format("unknown mark {}; 0, 1 and 2 are known", tag));
    }
  }
  const auto records = in.get<uint64_t>("the count of records");
  if (records != trace.records.size())
    throw in.damaged(fmt::format("{} records were written, {} are here", records, trace.records.size()));
  const uint64_t hash = Hash64().add(in.data(), in.offset()).value();
  if (in.get<uint64_t>("the checksum") != hash)
    throw in.damaged("the checksum does not match: the file is damaged");
  if (in.left() > 0) throw in.damaged(fmt::format("{} bytes follow the end", in.left()));
  return trace;
}

}  // namespace weir
