"""Methods under the KL condition: their settings, schedules of public figures, and what their theorems predict.

Source: Menart, Ullah, Arora, Bassily and Guzman, Differentially private non-convex optimization under the KL condition
with optimal rates (2024); where its print errs, the corrected form, and its docstring says so.
"""
