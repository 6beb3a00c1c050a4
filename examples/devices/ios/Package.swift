// swift-tools-version:5.9
import PackageDescription

let package = Package(
  name: "Classifier",
  platforms: [.iOS(.v17), .macOS(.v14)],
  products: [.library(name: "Classifier", targets: ["Classifier"])],
  dependencies: [
    .package(url: "https://github.com/pytorch/executorch.git", branch: "swiftpm-1.5.1")
  ],
  targets: [
    .target(
      name: "Classifier",
      dependencies: [
        .product(name: "executorch", package: "executorch"),
        .product(name: "backend_coreml", package: "executorch"),
        .product(name: "backend_xnnpack", package: "executorch"),
        .product(name: "kernels_optimized", package: "executorch"),
      ],
      path: ".",
      sources: ["Classifier.swift"],
      // Delegates and kernels register themselves when the app starts: no symbol of theirs is called.
      linkerSettings: [.unsafeFlags(["-Wl,-all_load"])]
    )
  ]
)
