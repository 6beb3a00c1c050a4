android {
    // A compressed program would have to be unpacked before each copy.
    androidResources { noCompress += "pte" }
    defaultConfig { ndk { abiFilters += "arm64-v8a" } }
}

dependencies {
    // One of the three: they have the same classes, and libraries of one name.
    implementation("org.pytorch:executorch-android:1.5.1") // XNNPACK
    // implementation("org.pytorch:executorch-android-vulkan:1.5.1") // XNNPACK and Vulkan
    // implementation("org.pytorch:executorch-android-qnn:1.5.1") // XNNPACK and QNN
}
