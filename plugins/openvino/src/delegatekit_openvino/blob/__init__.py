"""The blob: what OpenVINO exports, read and made independent of the process."""
