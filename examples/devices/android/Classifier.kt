package org.example.classifier

import android.content.Context
import java.io.Closeable
import java.io.File
import org.pytorch.executorch.EValue
import org.pytorch.executorch.Module
import org.pytorch.executorch.Tensor

/** Classifies images by the program `model.pte` in the app's assets. For one thread at a time. */
class Classifier(context: Context) : Closeable {
    private val module: Module

    init {
        // ExecuTorch reads a file by its path, which an asset does not have.
        val file = File(context.filesDir, "model.pte")
        context.assets.open("model.pte").use { asset -> file.outputStream().use { asset.copyTo(it) } }
        module = Module.load(file.absolutePath, Module.LOAD_MODE_MMAP)
    }

    /** The scores of the classes for an image of 3 x 224 x 224 numbers, channel by channel. */
    fun classify(image: FloatArray): FloatArray {
        val input = Tensor.fromBlob(image, longArrayOf(1, 3, 224, 224))
        return module.forward(EValue.from(input))[0].toTensor().getDataAsFloatArray()
    }

    override fun close() {
        module.destroy()
    }
}
