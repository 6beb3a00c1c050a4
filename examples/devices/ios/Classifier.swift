import ExecuTorch
import Foundation

/// Classifies images by the program `model.pte` in the app's bundle. For one thread at a time.
public final class Classifier {
  private let module: Module

  public init(bundle: Bundle = .main) throws {
    guard let path = bundle.path(forResource: "model", ofType: "pte") else {
      throw CocoaError(.fileNoSuchFile)
    }
    module = Module(filePath: path)
    try module.load("forward")
  }

  /// The scores of the classes for an image of 3 x 224 x 224 numbers, channel by channel.
  public func classify(_ image: [Float]) throws -> [Float] {
    let input = Tensor<Float>(image, shape: [1, 3, 224, 224])
    return try Tensor<Float>(module.forward(input)).scalars()
  }
}
