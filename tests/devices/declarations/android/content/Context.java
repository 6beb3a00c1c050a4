// Signatures of the class, for the Kotlin compiler: nothing of it runs.
package android.content;
public abstract class Context {
  public abstract java.io.File getFilesDir();
  public abstract android.content.res.AssetManager getAssets();
}
