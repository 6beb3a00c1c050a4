// Signatures of the class, for the Kotlin compiler: nothing of it runs.
package org.pytorch.executorch;
public abstract class Tensor {
  public static Tensor fromBlob(float[] data, long[] shape) { return null; }
  public float[] getDataAsFloatArray() { return null; }
}
