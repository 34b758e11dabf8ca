// A profile for people (text, Markdown) and for programs (JSON, docs/json.md). Made from the profile alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/profile/profile.h"
#include "lab/profile/table.h"

namespace weir::lab {

/// Several lines, each ended.
std::string profile_text(const Profile& profile, Layout layout);
nlohmann::ordered_json profile_json(const Profile& profile);

/// One line on the model, the device and the settings: above every report.
std::string settings_text(const ProfileSettings& settings);
nlohmann::ordered_json settings_json(const ProfileSettings& settings);

}  // namespace weir::lab
