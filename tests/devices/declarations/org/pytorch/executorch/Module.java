// Signatures of the class, for the Kotlin compiler: nothing of it runs.
package org.pytorch.executorch;
public class Module {
  public static final int LOAD_MODE_MMAP = 1;
  public static Module load(final String modelPath) { return null; }
  public static Module load(final String modelPath, int loadMode) { return null; }
  public EValue[] forward(EValue... inputs) { return null; }
  public int loadMethod(String methodName) { return 0; }
  public void destroy() {}
}
