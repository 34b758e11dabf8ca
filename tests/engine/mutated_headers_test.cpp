// Whatever a header holds, opening the model ends in a plan or in one line of Error: no other exception, no
// CHECK, no hang. 5,000 seeded headers, half of them damaged in their bytes and half in what they say; some
// of those that open are also loaded and run.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "engine/engine.h"
#include "support/mutate.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

constexpr uint64_t rounds = 2500;  // of each kind
constexpr int run_every = 16;      // of those that open

class EngineMutatedHeaders : public testing::TestWithParam<const char*> {
 protected:
  EngineMutatedHeaders() {
    options_.architecture = GetParam();
    const gguf::Model model = gguf::Model::parse(test::tiny_model(options_).bytes(), "tiny");
    header_bytes_ = model.files()[0].data_offset;
    for (const auto& [key, value] : model.metadata()) keys_.push_back(key);
    for (const char* name : {"rope.scaling.type", "rope.scaling.factor", "rope.dimension_count",
                             "expert_gating_func", "attention.causal", "frobnication"})
      keys_.push_back(options_.architecture + "." + name);
  }

  /// The file's header, and zeros for its tensors.
  void write(const std::vector<uint8_t>& bytes, uint64_t header_bytes) {
    test::write_file(path_, bytes.data(), header_bytes);
    std::filesystem::resize_file(path_, bytes.size());
  }

  void load_and_run(Engine& engine) {
    engine.load();
    Request request;
    request.prompt = {1, 2, 3};
    request.max_tokens = 2;
    const Result result = engine.run(std::move(request));
    EXPECT_FALSE(result.finish == Finish::failed && result.error_kind != Error::Kind::input) << result.error;
  }

  void open(uint64_t seed) {
    SCOPED_TRACE(seed);
    EngineOptions options;
    options.model = path_;
    options.threads = 1;
    options.context = 32;
    options.memory = uint64_t{1} << 30;
    try {
      Engine engine(options);
      if (opened_++ % run_every == 0) load_and_run(engine);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::input) << error.what();
      EXPECT_NE(std::string(error.what()), "");
      ++refused_;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "no Error, but " << error.what();
    }
  }

  void expect_both_kinds() const {
    EXPECT_GT(opened_, static_cast<int>(rounds / 250));
    EXPECT_GT(refused_, static_cast<int>(rounds / 250));
  }

  test::TinyModelOptions options_;
  uint64_t header_bytes_ = 0;
  std::vector<std::string> keys_;
  test::TempDir dir_;
  std::string path_ = dir_.file("mutant.gguf");
  int opened_ = 0, refused_ = 0;
};

TEST_P(EngineMutatedHeaders, BytesGiveAPlanOrAnError) {
  const std::vector<uint8_t> good = test::tiny_model(options_).bytes();
  for (uint64_t seed = 0; seed < rounds / 2; ++seed) {
    write(test::mutated_bytes(good, header_bytes_, seed), header_bytes_);
    open(seed);
  }
  expect_both_kinds();
}

TEST_P(EngineMutatedHeaders, ValuesGiveAPlanOrAnError) {
  const gguf::Writer good = test::tiny_model(options_);
  for (uint64_t seed = 0; seed < rounds / 2; ++seed) {
    gguf::Writer writer = good;
    try {
      test::mutate_metadata(writer, keys_, seed);
      const std::vector<uint8_t> bytes = writer.bytes();
      write(bytes, std::min<uint64_t>(bytes.size(), header_bytes_ + 4096));
    } catch (const Error&) {
      continue;  // an alignment that the writer refuses
    }
    open(seed);
  }
  expect_both_kinds();
}

INSTANTIATE_TEST_SUITE_P(, EngineMutatedHeaders, testing::Values("qwen3moe", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace weir
